"""The families: one file each, a spec function and its sizes. The file's name is the family's."""
