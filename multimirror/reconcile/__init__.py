"""What is to be done about one object and its copies (`decide`: pure), and the doing of it (`lanes`, `execute`)."""
