def frost(celsius: float, wind_kmh: float = 0) -> bool:
    """Whether it feels like frost."""
    return celsius - wind_kmh / 10 < 0
