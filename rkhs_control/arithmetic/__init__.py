"""Numbers: outward rounding, and twice the digits where doubles cancel."""
