import java.nio.ByteBuffer;
import java.util.TreeMap;
import java.util.HexFormat;
import org.apache.rocketmq.remoting.protocol.LanguageCode;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.SerializeType;

/**
 * Encodes and decodes frames with RocketMQ's own classes, for the tests of ours.
 *
 * Input, one case a line, fields between tabs:
 *     encode  JSON|ROCKETMQ  code  opaque  flag  version  remark  body(hex)  name=value ...
 *     decode  frame(hex)
 * Output, a line each, which begins with "> " among those of the logging library: the frame in hex, or the decoded
 * fields in the form of the input.
 */
public class Frames {
    public static void main(String[] args) throws Exception {
        try (var in = new java.io.BufferedReader(new java.io.InputStreamReader(System.in, "UTF-8"));
             var out = new java.io.PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), true, "UTF-8")) {
            for (String line; (line = in.readLine()) != null; ) {
                String[] fields = line.split("\t", -1);
                out.println("> " + (fields[0].equals("encode") ? encode(fields) : decode(fields[1])));
            }
        }
    }

    private static String encode(String[] fields) {
        RemotingCommand command = RemotingCommand.createRequestCommand(Integer.parseInt(fields[2]), null);
        command.setSerializeTypeCurrentRPC(SerializeType.valueOf(fields[1]));
        command.setLanguage(LanguageCode.PYTHON);
        command.setOpaque(Integer.parseInt(fields[3]));
        command.setFlag(Integer.parseInt(fields[4]));
        command.setVersion(Integer.parseInt(fields[5]));
        if (!fields[6].isEmpty()) command.setRemark(fields[6]);
        if (!fields[7].isEmpty()) command.setBody(HexFormat.of().parseHex(fields[7]));
        for (int i = 8; i < fields.length; i++) {
            String[] pair = fields[i].split("=", 2);
            command.addExtField(pair[0], pair[1]);
        }
        ByteBuffer frame = command.encode();
        byte[] bytes = new byte[frame.remaining()];
        frame.get(bytes);
        return HexFormat.of().formatHex(bytes);
    }

    private static String decode(String hex) throws Exception {
        byte[] frame = HexFormat.of().parseHex(hex);
        RemotingCommand command = RemotingCommand.decode(ByteBuffer.wrap(frame, 4, frame.length - 4).slice());
        var text = new StringBuilder();
        text.append(command.getCode()).append('\t').append(command.getOpaque()).append('\t');
        text.append(command.getFlag()).append('\t').append(command.getVersion()).append('\t');
        text.append(command.getLanguage()).append('\t');
        text.append(command.getRemark() == null ? "" : command.getRemark()).append('\t');
        text.append(command.getBody() == null ? "" : HexFormat.of().formatHex(command.getBody()));
        if (command.getExtFields() != null)
            new TreeMap<>(command.getExtFields()).forEach((name, value) -> text.append('\t').append(name).append('=').append(value));
        return text.toString();
    }
}
