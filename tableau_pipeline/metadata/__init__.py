"""What a data source says of its fields: what is wanted, and what its `.tds` holds."""
