#include "hdf5/hdf5_handle.hpp"

#include <fmt/format.h>
#include <hdf5.h>

#include <type_traits>
#include <vector>

namespace metro {

static_assert(std::is_same_v<hid_t, Hdf5Id> || sizeof(hid_t) == sizeof(Hdf5Id), "HDF5 1.10 or newer is needed");

void prepare_hdf5() {
  static const herr_t first_call = H5dont_atexit();
  static_cast<void>(first_call);  // negative if someone has asked for it before
  if (H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr) < 0 || H5PLset_loading_state(0) < 0) {
    throw Error(ExitCode::machine, "HDF5 cannot be initialised");
  }
}

namespace {

herr_t collect_text(unsigned /*position*/, const H5E_error2_t* entry, void* texts) {
  if (entry->desc != nullptr) {
    static_cast<std::vector<std::string>*>(texts)->emplace_back(entry->desc);
  }
  return 0;
}

}  // namespace

void throw_hdf5(ExitCode on_failure, const std::string& what) {
  std::vector<std::string> texts;  // outermost first
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, collect_text, &texts);
  H5Eclear2(H5E_DEFAULT);
  std::string reason = texts.empty() ? "HDF5 gives no reason" : texts.front();
  if (texts.size() > 1 && texts.back() != texts.front()) {
    reason += ": " + texts.back();
  }
  throw Error(on_failure, fmt::format("{}: {}", what, reason));
}

}  // namespace metro
