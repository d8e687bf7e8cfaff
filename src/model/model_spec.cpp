#include "model/model_spec.hpp"

#include <algorithm>

namespace metro {

std::int64_t ModelSpec::num_moe_layers() const {
  return std::count(layers.begin(), layers.end(), LayerKind::moe);
}

}  // namespace metro
