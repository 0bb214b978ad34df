from host import tools

tea = tools.shop__get_article(name="tea")
order = tools.shop__create_order(article="tea", quantity=2, price=tea["price"])
extra = tools.shop__create_order(article="sugar", quantity=1, price=1)
paid = tools.shop__pay(order=order["id"], note=f"for order {order['id']}")
{"order": order["id"], "paid": paid}
