"""What the paper claims, each as a check over the tables.

A claim that the tables do not cover is `not enough runs`; one that compares designs which are the
same function is `invariant by construction`, and is shown to be so numerically.
"""

from coefdyn.paper.claims import dynamics, readouts, sizes

CLAIMS = (*readouts.CLAIMS, *dynamics.CLAIMS, *sizes.CLAIMS)
