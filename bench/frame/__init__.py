"""What every part of the bench stands on: generator, fleets, meters, results, report, plots, range check."""
