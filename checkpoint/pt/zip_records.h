// The fixed parts of a zip file as torch.save writes it: field positions and values that reader and writer share
// (PKWARE's APPNOTE 6.3.10, sections 4.3.7 to 4.5.3). No LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ddp::pt::zip {

inline constexpr uint32_t kLocalSignature = 0x04034b50;
inline constexpr uint32_t kDescriptorSignature = 0x08074b50;
inline constexpr uint32_t kCentralSignature = 0x02014b50;
inline constexpr uint32_t kEnd64Signature = 0x06064b50;
inline constexpr uint32_t kLocator64Signature = 0x07064b50;
inline constexpr uint32_t kEndSignature = 0x06054b50;

inline constexpr size_t kLocalBytes = 30;
inline constexpr size_t kCentralBytes = 46;
inline constexpr size_t kEnd64Bytes = 56;
inline constexpr size_t kLocator64Bytes = 20;
inline constexpr size_t kEndBytes = 22;

inline constexpr uint16_t kFlagDescriptor = 1 << 3;  ///< sizes and checksum follow the data
inline constexpr uint16_t kFlagUtf8 = 1 << 11;       ///< the name is UTF-8

inline constexpr uint16_t kFlagsDeflate = 3 << 1;  ///< how hard a deflated entry was packed

inline constexpr uint16_t kStored = 0;
inline constexpr uint16_t kDeflated = 8;  ///< the one compression method that is known

inline constexpr uint16_t kZip64Extra = 1;
/// PyTorch's extra field, which moves the data to a multiple of 64: "FB", a length, and as many Z.
inline constexpr uint16_t kPaddingExtra = 0x4246;
inline constexpr char kPaddingByte = 'Z';
inline constexpr uint64_t kAlignment = 64;

inline constexpr uint32_t kValueInZip64 = 0xffffffff;  ///< the value is in the zip64 extra field

}  // namespace ddp::pt::zip
