// A black square to draw on in white, with a pointer or with keys.

import { h } from "./dom";

const SIDE = 280;
const PEN = 22;
const STEP = 10; // pixels an arrow key moves the pen

export class Drawing {
  readonly canvas: HTMLCanvasElement;
  private readonly context: CanvasRenderingContext2D;
  private last: [number, number] | null = null;
  private pen: [number, number] = [SIDE / 2, SIDE / 2];
  private isPenDown = false;

  constructor(
    private readonly change: () => void,
    private readonly say: (text: string) => void,
  ) {
    this.canvas = h("canvas", {
      width: SIDE, height: SIDE, tabindex: 0, role: "img",
      "aria-label": "Drawing. Draw with the pointer; or press Space to put the pen down or lift it, and move it with the arrow keys.",
      onpointerdown: (event: PointerEvent) => this.down(event),
      onpointermove: (event: PointerEvent) => this.move(event),
      onpointerup: () => this.up(),
      onpointercancel: () => this.up(),
      onkeydown: (event: KeyboardEvent) => this.press(event),
    });
    const context = this.canvas.getContext("2d");
    if (context === null) throw new Error("this browser cannot draw");
    this.context = context;
    this.clear();
  }

  clear(): void {
    this.context.fillStyle = "black";
    this.context.fillRect(0, 0, SIDE, SIDE);
    this.pen = [SIDE / 2, SIDE / 2];
    this.isPenDown = false;
  }

  /** Show a picture, as large as fits. */
  show(picture: ImageBitmap): void {
    this.clear();
    const scale = Math.min(SIDE / picture.width, SIDE / picture.height);
    const [width, height] = [picture.width * scale, picture.height * scale];
    this.context.imageSmoothingEnabled = scale < 1;
    this.context.drawImage(picture, (SIDE - width) / 2, (SIDE - height) / 2, width, height);
  }

  get url(): string {
    return this.canvas.toDataURL("image/png");
  }

  private line([x, y]: [number, number], [toX, toY]: [number, number]): void {
    this.context.strokeStyle = "white";
    this.context.lineWidth = PEN;
    this.context.lineCap = "round";
    this.context.beginPath();
    this.context.moveTo(x, y);
    this.context.lineTo(toX, toY);
    this.context.stroke();
  }

  private place(event: PointerEvent): [number, number] {
    const box = this.canvas.getBoundingClientRect();
    return [((event.clientX - box.left) * SIDE) / box.width, ((event.clientY - box.top) * SIDE) / box.height];
  }

  private down(event: PointerEvent): void {
    this.canvas.setPointerCapture(event.pointerId);
    this.last = this.place(event);
    this.line(this.last, this.last);
  }

  private move(event: PointerEvent): void {
    if (this.last === null) return;
    const next = this.place(event);
    this.line(this.last, next);
    this.last = next;
  }

  private up(): void {
    if (this.last === null) return;
    this.last = null;
    this.change();
  }

  private press(event: KeyboardEvent): void {
    const moves: Record<string, [number, number]> = {
      ArrowLeft: [-STEP, 0], ArrowRight: [STEP, 0], ArrowUp: [0, -STEP], ArrowDown: [0, STEP],
    };
    const move = moves[event.key];
    if (move === undefined && event.key !== " ") return;
    event.preventDefault();
    if (move === undefined) {
      this.isPenDown = !this.isPenDown;
      if (this.isPenDown) this.line(this.pen, this.pen);
      else this.change();
      this.say(this.isPenDown ? "Pen down" : "Pen lifted");
      return;
    }
    const next: [number, number] = [clamp(this.pen[0] + move[0]), clamp(this.pen[1] + move[1])];
    if (this.isPenDown) this.line(this.pen, next);
    this.pen = next;
    const [x, y] = next.map((each) => Math.round((100 * each) / SIDE));
    this.say(`Pen ${this.isPenDown ? "down" : "lifted"} at ${x} % from the left, ${y} % from the top`);
  }
}

function clamp(value: number): number {
  return Math.min(Math.max(value, 0), SIDE);
}
