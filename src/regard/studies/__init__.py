"""Studies: settings in, tables and figures out."""
