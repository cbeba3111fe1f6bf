"""What people read and fill in: sheets, workbooks, the page, and what two annotators agree on."""
