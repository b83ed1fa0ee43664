"""Those who mean harm: a worker that answers anything, and a tenant who tries everything that the API lets it.

Both are seeded parts of a run, like faults: the same seed is the same run, event for event. What they do is data
(`tricks`, `attacks`), so that a run which broke a promise is told as its shortest story. Checks (`bystanders`,
`tenancy`) are made for everybody else: what a hostile worker says about its own Jobs is its own.
"""
