"""What we promise about speed, measured: ratios within one run, never times on a wall clock."""
