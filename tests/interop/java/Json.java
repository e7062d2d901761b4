import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Iterator;
import java.util.Map;

/** Writes maps, iterables, text, numbers, booleans and null as JSON; needs no library, so it serves every release. */
final class Json {
    private static final PrintStream OUT =
        new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.US_ASCII);

    private Json() {}

    /** Keeps standard output for JSON alone: the client's logging library prints there about itself. */
    static void ownStandardOutput() {
        System.setOut(System.err);
    }

    /** Prints a value as one line, at once. */
    static synchronized void print(Object value) {
        OUT.println(text(value));
    }

    static String text(Object value) {
        StringBuilder out = new StringBuilder();
        append(out, value);
        return out.toString();
    }

    private static void append(StringBuilder out, Object value) {
        if (value instanceof Map<?, ?> map) {
            out.append('{');
            for (Iterator<? extends Map.Entry<?, ?>> entries = map.entrySet().iterator(); entries.hasNext(); ) {
                Map.Entry<?, ?> entry = entries.next();
                quote(out, entry.getKey().toString());
                out.append(':');
                append(out, entry.getValue());
                if (entries.hasNext()) out.append(',');
            }
            out.append('}');
        } else if (value instanceof Iterable<?> elements) {
            out.append('[');
            for (Iterator<?> iterator = elements.iterator(); iterator.hasNext(); ) {
                append(out, iterator.next());
                if (iterator.hasNext()) out.append(',');
            }
            out.append(']');
        } else if (value == null || value instanceof Number || value instanceof Boolean) {
            out.append(value);
        } else {
            quote(out, value.toString());
        }
    }

    /** Everything outside printable ASCII is escaped, so the text survives any console encoding. */
    private static void quote(StringBuilder out, String text) {
        out.append('"');
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < 0x20 || c > 0x7e) {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        out.append('"');
    }
}
