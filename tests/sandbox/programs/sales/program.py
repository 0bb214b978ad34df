import pandas as pd

orders = pd.read_csv("/input/orders.csv", parse_dates=["date"]).drop_duplicates()
orders["city"] = orders["city"].str.strip().str.title()
orders["amount"] = pd.to_numeric(orders["amount"], errors="coerce")
orders = orders.dropna(subset=["date", "amount"])
totals = orders.groupby([orders["date"].dt.strftime("%Y-%m").rename("month"), "city"])["amount"].agg(["count", "sum"])
totals.to_csv("/output/totals.csv")
totals.reset_index()
