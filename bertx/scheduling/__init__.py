"""Who runs which run, and when: workers that share a folder by leases, runs of one program, Ray, TPU slices."""
