"""Request bodies: parsing, hashes, memory."""
