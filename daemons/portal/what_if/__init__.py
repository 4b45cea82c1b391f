"""What-ifs in processes of their own, and what came of them side by side. Imported by the pages."""
