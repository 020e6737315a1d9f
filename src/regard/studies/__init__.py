"""Studies: plain functions from settings to tables and figures, measured on the machine at hand."""
