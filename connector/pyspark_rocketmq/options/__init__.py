"""Options: the texts that users give, and the typed values they mean.

    names         how each option is spelled
    parsers       one text to one value
    table         every option: parser, default, scope, documentation
    raw_options   looks a query's options up in the table
    options       rules that involve several options: SourceOptions, SinkOptions, ClientOptions

Behind `options` only typed values travel.
"""
