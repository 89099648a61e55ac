// CRC32C (Castagnoli), and the masked form that TFRecord files keep.
#pragma once

#include <cstdint>
#include <string_view>

namespace ddp {

/// CRC32C of the bytes: polynomial 0x1EDC6F41, reflected, initial value and final exclusive-or all ones (RFC 3720,
/// appendix B.4).
uint32_t crc32c(std::string_view bytes);

/// TFRecord's form of a CRC: rotated and shifted, so that the CRC of data that holds CRCs stays a good one.
uint32_t masked_crc32c(std::string_view bytes);

}  // namespace ddp
