#include "requests/packed_text.hpp"

#include <zlib.h>
#include <zstd.h>
#include <catch2/catch.hpp>

namespace metro::test {

std::string gzipped(std::string_view text) {
  z_stream stream{};
  REQUIRE(::deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string copy(text);
  std::string packed(::deflateBound(&stream, static_cast<uLong>(text.size())), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(copy.data());
  stream.avail_in = static_cast<uInt>(copy.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  REQUIRE(::deflate(&stream, Z_FINISH) == Z_STREAM_END);
  packed.resize(stream.total_out);
  REQUIRE(::deflateEnd(&stream) == Z_OK);
  return packed;
}

std::string zstd_packed(std::string_view text, int window_log) {
  ZSTD_CCtx* context = ::ZSTD_createCCtx();
  REQUIRE(context != nullptr);
  REQUIRE(::ZSTD_isError(::ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1)) == 0);
  REQUIRE(::ZSTD_isError(::ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, window_log)) == 0);
  std::string packed(::ZSTD_compressBound(text.size()) + 64, '\0');
  // As a stream of unknown length, or the library would make the window as small as the text.
  ZSTD_outBuffer output{packed.data(), packed.size(), 0};
  ZSTD_inBuffer input{text.data(), text.size(), 0};
  REQUIRE(::ZSTD_isError(::ZSTD_compressStream2(context, &output, &input, ZSTD_e_continue)) == 0);
  REQUIRE(::ZSTD_compressStream2(context, &output, &input, ZSTD_e_end) == 0);
  ::ZSTD_freeCCtx(context);
  packed.resize(output.pos);
  return packed;
}

}  // namespace metro::test
