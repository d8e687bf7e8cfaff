// How the rows of decode steps travel in this job: from the deck and, where that leaves it open, from what the ranks
// measure and agree on before they load weights.
#pragma once

#include "deck/deck.hpp"
#include "decoder/exchange_mode.hpp"
#include "decoder/routing_settings.hpp"
#include "decoder/row_batch.hpp"
#include "model/model_spec.hpp"
#include "placement/placement.hpp"
#include "transport/device_exchange.hpp"

#include <cstdint>
#include <string>

namespace metro {

// What the deck says. "auto" is allgather where there is nothing to choose: on one rank, with a gathered gate, without
// experts.
ExchangeSettings exchange_settings(const Deck& deck, const ModelSpec& spec, std::int64_t num_ranks);

// Collective. If limits.exchange is automatic, measures both ways (a fifth of a second at most, for usual models a
// hundredth) and sets its border. Sets the levels of the transport; if they are automatic too, and two are possible,
// measures with one and with two. Returns what the start-up table says. The same on all ranks.
std::string agree_on_exchange(const ModelSpec& spec, const Placement& placement, const RoutingSettings& routing,
                              DeviceExchange& exchange, DecoderLimits& limits);

}  // namespace metro
