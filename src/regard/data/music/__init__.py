"""Music: notes, MIDI files, and notes as words."""
