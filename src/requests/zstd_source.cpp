// Zstandard data (RFC 8878): one or more frames, one behind the other.
#include "requests/byte_source.hpp"

#include <fmt/format.h>
#include <zstd.h>

#include <utility>
#include <vector>

namespace metro {

namespace {

class ZstdSource : public ByteSource {
 public:
  explicit ZstdSource(std::unique_ptr<ByteSource> packed)
      : packed_(std::move(packed)), buffer_(::ZSTD_DStreamInSize()), stream_(::ZSTD_createDStream()) {
    if (stream_ == nullptr) {
      throw SourceError("zstd cannot be started: out of memory");
    }
  }
  ~ZstdSource() override { ::ZSTD_freeDStream(stream_); }
  ZstdSource(const ZstdSource&) = delete;
  ZstdSource& operator=(const ZstdSource&) = delete;

  std::optional<std::size_t> read(std::span<char> room, double patience_s) override {
    ZSTD_outBuffer output{room.data(), room.size(), 0};
    while (output.pos == 0) {
      if (input_.pos == input_.size && !has_more_output_) {
        const auto count = packed_->read(buffer_, patience_s);
        if (!count) {
          return std::nullopt;
        }
        if (*count == 0) {
          require_end();
          return 0;
        }
        input_ = {buffer_.data(), *count, 0};
      }
      step(output);
    }
    return output.pos;
  }

 private:
  void require_end() const {
    if (in_frame_) {
      throw SourceError(fmt::format("the zstd data end too early, after byte {} of the file", position_));
    }
  }

  void step(ZSTD_outBuffer& output) {
    const std::size_t before = input_.pos;
    const std::size_t code = ::ZSTD_decompressStream(stream_, &output, &input_);
    position_ += static_cast<std::int64_t>(input_.pos - before);
    if (::ZSTD_isError(code) != 0) {
      // The limit on the window (128 MiB) keeps memory bounded: only --long=28 and above exceed it.
      throw SourceError(fmt::format("the zstd data are damaged or not supported at or before byte {} of the file ({})",
                                    position_, ::ZSTD_getErrorName(code)));
    }
    in_frame_ = code != 0;
    has_more_output_ = in_frame_ && output.pos == output.size;
  }

  std::unique_ptr<ByteSource> packed_;
  std::vector<char> buffer_;
  ZSTD_DStream* stream_;
  ZSTD_inBuffer input_{nullptr, 0, 0};
  std::int64_t position_ = 0;  // bytes of the file that the library has taken
  bool in_frame_ = true;
  bool has_more_output_ = false;  // the library may hold unpacked bytes for which there was no room
};

}  // namespace

std::unique_ptr<ByteSource> make_zstd_source(std::unique_ptr<ByteSource> packed) {
  return std::make_unique<ZstdSource>(std::move(packed));
}

}  // namespace metro
