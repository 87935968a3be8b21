"""Pictures and pages of sweeps and analyses."""
