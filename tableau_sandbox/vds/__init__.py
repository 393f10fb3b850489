"""VizQL Data Service: queries of published data sources in JSON."""
