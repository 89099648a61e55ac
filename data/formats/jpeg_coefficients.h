// The memory in which libjpeg keeps the coefficients of a JPEG file of several scans. No LibTorch.
#pragma once

#include <cstddef>
#include <cstdio>
// libjpeg's header needs what <cstdio> declares.
#include <jpeglib.h>

#include <memory>
#include <vector>

namespace ddp {

/// Takes the place of libjpeg's own arrays of coefficients, which stay until the last row of the picture is read, and
/// so make a picture cost up to three times its size. Here the rows that were read are given back to the system.
class JpegCoefficients {
 public:
  JpegCoefficients() = default;
  ~JpegCoefficients();
  JpegCoefficients(const JpegCoefficients&) = delete;
  JpegCoefficients& operator=(const JpegCoefficients&) = delete;

  /// `decoder` has been created, and must be destroyed before this object. Uses its `client_data`.
  void install(jpeg_decompress_struct& decoder);

 private:
  struct Array {
    JBLOCK* blocks = nullptr;
    size_t row_blocks = 0;
    size_t rows = 0;
    size_t released_rows = 0;
    std::vector<JBLOCKROW> row_pointers{};

    size_t bytes() const { return rows * row_blocks * sizeof(JBLOCK); }
  };

  static JpegCoefficients& of(j_common_ptr decoder);
  static jvirt_barray_ptr request(j_common_ptr decoder, int pool, boolean is_zeroed, JDIMENSION row_blocks,
                                  JDIMENSION rows, JDIMENSION most_rows);
  static void realize(j_common_ptr decoder);
  static JBLOCKARRAY access(j_common_ptr decoder, jvirt_barray_ptr which, JDIMENSION first, JDIMENSION rows,
                            boolean is_written);
  bool add(size_t row_blocks, size_t rows);
  static bool map(Array& array);
  static void release(Array& array, size_t rows);

  std::vector<std::unique_ptr<Array>> arrays_;
  void (*realize_others_)(j_common_ptr) = nullptr;
};

}  // namespace ddp
