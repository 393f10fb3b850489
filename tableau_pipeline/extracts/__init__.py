"""From models to files: what tables are to hold, checked, compared and built.

Knows neither servers nor journals: whatever may be sent is built and proved here, and nothing is.
"""
