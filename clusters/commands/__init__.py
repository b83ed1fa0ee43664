"""The commands that the fleets add to `multimirror`: entry points of the group `multimirror.commands`."""
