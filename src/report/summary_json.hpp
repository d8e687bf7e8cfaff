// The summary of a metrics.h5 for programs: what `metro inspect FILE --json` prints.
#pragma once

#include <cstdio>
#include <string>

namespace metro {

// One JSON object on one line; its keys are in docs/formats.md. Throws what MetricsReader throws.
void inspect_metrics_as_json(const std::string& path, std::FILE* out);

}  // namespace metro
