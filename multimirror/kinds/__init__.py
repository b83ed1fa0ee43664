"""The kinds of object that are mirrored, one module each, behind one protocol. Pure: no I/O, no clock."""
