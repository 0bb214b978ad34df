-- wrk: one calculator call, again and again.
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{"arguments":{"expression":"(2+3)*7"}}'
