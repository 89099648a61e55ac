#include <ATen/ops/empty.h>

#include <ddprun/data/byte_source.h>

#include "data/datasets/raster_bytes.h"
#include "data/formats/limits.h"
#include "data/formats/raster.h"
#include "ddprun/data/arrays.h"

namespace ddp {
namespace {

at::ScalarType dtype_of(const Raster& raster) {
  if (raster.kind == SampleKind::kFloat) return raster.sample_bytes == 8 ? at::kDouble : at::kFloat;
  const bool is_signed = raster.kind == SampleKind::kSigned;
  switch (raster.sample_bytes) {
    case 1:
      return is_signed ? at::kChar : at::kByte;
    case 2:
      return is_signed ? at::kShort : at::kUInt16;
    case 4:
      return is_signed ? at::kInt : at::kUInt32;
    default:
      return is_signed ? at::kLong : at::kUInt64;
  }
}

}  // namespace

at::Tensor raster_of_bytes(const std::vector<uint8_t>& bytes, const std::filesystem::path& path,
                           const DecodeOptions& options) {
  at::Tensor samples;
  decode_raster(bytes, path, options, [&](const Raster& raster) {
    samples = at::empty({raster.channels, raster.height, raster.width}, dtype_of(raster));
    return static_cast<uint8_t*>(samples.data_ptr());
  });
  return samples;
}

at::Tensor load_raster(const std::filesystem::path& file, const DecodeOptions& options) {
  constexpr uint64_t kMaxFileBytes = uint64_t{1} << 32;
  return with_data_errors(file,
                          [&] { return raster_of_bytes(read_small_file_bytes(file, kMaxFileBytes), file, options); });
}

}  // namespace ddp
