"""Values as pages show them: lists a page at a time, words, charts, graphs. Imported by the pages."""
