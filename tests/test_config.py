import dataclasses

import pytest

from framenest import PRESETS, ConfigError, DiscoveryConfig, IndexConfig, MECConfig, RankingConfig
from framenest.records import convert


def test_the_defaults_are_the_papers():
    """Table "Complete shared configuration"."""
    config = MECConfig()
    assert (config.index.base_probes, config.index.extra_probes, config.index.saturation) == (256, 256, 1800)
    assert (config.index.thumbnail, config.index.blur_kernel) == (32, 9)
    assert (config.index.exposure_mean, config.index.exposure_sigma) == (0.5, 0.2)
    weights = config.discovery.relevance_weight, config.discovery.change_weight
    assert (*weights, config.discovery.observability_weight) == (0.7, 0.2, 0.1)
    assert (config.discovery.segment_length, config.discovery.activation) == (4, 0.25)
    assert (config.discovery.zoom, config.discovery.anchors) == (2, 1)
    ranking = config.ranking
    assert (ranking.horizon, ranking.evidence_weight_start, ranking.evidence_weight_end) == (256, 0.6, 0.2)
    assert (ranking.diversity_weight, ranking.gamma, ranking.coverage_term) == (0.2, 1, True)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: IndexConfig(base_probes=0), r"^base_probes = 0 .* 1 or more"),
        (lambda: IndexConfig(base_probes=2.5), r"base_probes = 2.5"),
        (lambda: IndexConfig(saturation=0), r"saturation = 0 .* more than 0"),
        (lambda: IndexConfig(saturation=float("nan")), r"saturation = nan"),
        (lambda: IndexConfig(probing="random"), r"probing = 'random' .* one of uniform, keyframes"),
        (lambda: IndexConfig(blur_kernel=4), r"blur_kernel = 4 .* odd"),
        (lambda: IndexConfig(exposure_mean=1.5), r"exposure_mean = 1.5 .* between 0 and 1"),
        (lambda: IndexConfig(start=-1), r"start = -1"),
        (lambda: IndexConfig(start=5, end=5), r"end = 5 .* more than start \(5\)"),
        (lambda: DiscoveryConfig(activation=0), r"activation = 0 .* more than 0, at most 1"),
        (lambda: DiscoveryConfig(activation=1.1), r"activation = 1.1"),
        (lambda: DiscoveryConfig(relevance_weight=-0.1), r"relevance_weight = -0.1 .* 0 or more"),
        (lambda: DiscoveryConfig(zoom=-1), r"zoom = -1"),
        (lambda: DiscoveryConfig(anchors=True), r"anchors = True"),
        (lambda: RankingConfig(horizon=0), r"horizon = 0"),
        (lambda: RankingConfig(gamma=0), r"gamma = 0 .* more than 0"),
        (
            lambda: RankingConfig(evidence_weight_start=0.9),
            r"evidence_weight_start = 0.9 .* between 0 and 0.8 \(1 - diversity_weight\)",
        ),
        (
            lambda: RankingConfig(diversity_weight=0.9),
            r"evidence_weight_start = 0.6 .* between 0 and 0.1 \(1 - diversity_weight\)",
        ),
        (lambda: RankingConfig(evidence_weight_end=-0.1), r"evidence_weight_end = -0.1"),
    ],
)
def test_a_bad_value_names_field_value_and_range(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_configs_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        MECConfig().ranking.horizon = 8


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_valid_and_round_trips(name):
    config = MECConfig.preset(name)
    assert convert(config.to_json(), MECConfig) == config


def weights(name):
    ranking = MECConfig.preset(name).ranking
    return ranking.evidence_weight_start, ranking.evidence_weight_end, ranking.diversity_weight, ranking.gamma


def test_presets_are_those_of_the_ablation_tables():
    assert weights("static-weights") == (0.6, 0.6, 0.2, 1)
    assert weights("static-coverage-heavy") == (0.2, 0.2, 0.2, 1)
    assert weights("static-balanced") == (0.4, 0.4, 0.2, 1)
    assert weights("back-loaded") == (0.6, 0.2, 0.2, 1.5)
    assert weights("front-loaded") == (0.6, 0.2, 0.2, 2 / 3)
    assert weights("reverse") == (0.2, 0.6, 0.2, 1)
    assert weights("high-to-mid") == (0.7, 0.3, 0.2, 1)
    assert weights("mid-to-low") == (0.5, 0.1, 0.2, 1)
    assert weights("evidence-only") == (1, 1, 0, 1)
    assert weights("no-diversity") == (0.6, 0.2, 0, 1)
    assert MECConfig.preset("no-coverage").ranking == RankingConfig(coverage_term=False)
    assert MECConfig.preset("no-zoom").discovery == DiscoveryConfig(zoom=0)
    assert MECConfig.preset("no-change").discovery == DiscoveryConfig(change_weight=0)
    assert MECConfig.preset("no-observability").discovery == DiscoveryConfig(observability_weight=0)


def test_unknown_names_are_refused():
    with pytest.raises(ConfigError, match="there is no preset 'best'; choose from paper"):
        MECConfig.preset("best")
    with pytest.raises(ConfigError, match="there is no setting 'probes'; did you mean 'base_probes'"):
        MECConfig().with_settings({"probes": 3})
