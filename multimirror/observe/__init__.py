"""What people and programs see: the status of our objects, explanations, metrics."""
