import re

from pypdf import PdfReader

reader = PdfReader("/input/invoice.pdf")
text = "\n".join(page.extract_text() for page in reader.pages)
{"pages": len(reader.pages), "number": re.search(r"Invoice (\d+)", text)[1], "total": re.search(r"Total: (.+)", text)[1]}
