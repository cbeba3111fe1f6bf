// A hint above each table that is wider than its place; the tabulator stops only at what scrolls.
"use strict";
{
  const boxes = [...document.querySelectorAll(".scroll")];
  const pictures = [...document.querySelectorAll("picture")];
  const scrolls = (box) => box.scrollWidth > box.clientWidth;
  const look = () => {
    for (const box of boxes) box.previousElementSibling.classList.toggle("shown", scrolls(box));
    for (const picture of pictures) picture.tabIndex = scrolls(picture) ? 0 : -1;
  };
  const sizes = new ResizeObserver(look);
  for (const box of boxes) for (const part of [box, box.firstElementChild]) sizes.observe(part);
  for (const picture of pictures) sizes.observe(picture.parentElement);
  look();
}
