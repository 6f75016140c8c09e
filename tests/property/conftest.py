"""How Hypothesis plays here: no deadline, no memory between runs, and no tracing for an explanation of a failure."""

from hypothesis import HealthCheck, Phase, settings

settings.register_profile(
    "gate",
    deadline=None,
    database=None,
    phases=(Phase.explicit, Phase.generate, Phase.target, Phase.shrink),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("gate")
