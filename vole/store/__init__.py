"""SQLite: one writer thread, readers, transactions, migrations. The only importer of the drivers; knows no job."""
