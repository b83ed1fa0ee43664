"""Which object goes next, and where.

Pure: `candidates`, `usage`, `order`, `filters`, `scores`, `plan`; the shell: `scheduler`.
"""
