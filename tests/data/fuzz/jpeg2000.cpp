// JPEG 2000 files and codestreams.
#include "tests/data/fuzz/hex.h"
#include "tests/data/fuzz/picture.h"

std::vector<std::string> fuzz::seeds() {
  // 9x11 pixels, written by Pillow 13.
  std::vector<std::string> all = {
      from_hex("0000000c6a5020200d0a870a00000014667479706a703220000000006a7032200000002d6a70326800000016696864720000"
               "00090000000b0003070700000000000f636f6c7201000000000010000000ae6a703263ff4fff51002f00000000000b000000"
               "0900000000000000000000000b0000000900000000000000000003070101070101070101ff52000c00000001000304040001"
               "ff5c000d4040484850484850484850ff640025000143726561746564206279204f70656e4a5045472076657273696f6e2032"
               "2e352e34ff90000a00000000002d0001ff93df80280693e96ebfcfb4100693b120c7d4080641ff7f808080808080808080ff"
               "d9"),
      from_hex("ff4fff51002900000000000b0000000900000000000000000000000b0000000900000000000000000001070101ff52000c00"
               "000001000304040000ff5c001742673867506750676850055005504757d357d35762ff640025000143726561746564206279"
               "204f70656e4a5045472076657273696f6e20322e352e34ff90000a0000000000270001ff93c7ec0e0647c15014e97f80a01f"
               "086000809fa00e881433d5dfffd9")};
  // 255x255 tiles of a pixel, and ten thousand components.
  std::string tiles = all.back();
  for (const std::size_t place : {8U, 12U}) tiles.replace(place, 4, {'\0', '\0', '\0', '\xFF'});
  for (const std::size_t place : {24U, 28U}) tiles.replace(place, 4, {'\0', '\0', '\0', '\1'});
  all.push_back(tiles);
  all.push_back(tiles.replace(40, 2, {'\x27', '\x10'}));
  return all;
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  return read_picture(bytes);
}
