"""Review by people: sheets, workbooks, an HTML page, and the agreement of annotators."""
