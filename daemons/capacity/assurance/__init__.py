"""What demand of a trace can be promised at which assurance: `report.report_of`."""
