"""Which object goes next, and where. Pure: `usage`, `order`, `filters`, `scores`, `plan`; the shell: `scheduler`."""
