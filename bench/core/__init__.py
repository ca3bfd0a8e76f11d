"""What every comparison shares: rows, inputs, references, timing, the results' schema. Knows no implementation."""
