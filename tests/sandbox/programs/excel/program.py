from openpyxl import Workbook, load_workbook
from openpyxl.styles import Font

book = Workbook()
sheet = book.active
sheet.title = "Totals"
for row in [("city", "amount"), ("Kyoto", 2000), ("Osaka", 1400)]:
    sheet.append(row)
sheet["B4"] = "=SUM(B2:B3)"
sheet["A1"].font = Font(bold=True)
book.save("/output/totals.xlsx")
[[cell.value for cell in row] for row in load_workbook("/output/totals.xlsx")["Totals"]]
