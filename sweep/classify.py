"""The verdict: a pure function of a measurement, its console facts and its comparisons."""
